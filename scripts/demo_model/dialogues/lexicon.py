"""Everyday English words, by what they name. Invented words come from `names`; most texts mix both."""


def words(text: str) -> tuple[str, ...]:
    """Entries separated by white space; an underscore stands for a space inside an entry."""
    return tuple(word.replace("_", " ") for word in text.split())


FIRST_NAMES = words("""Anna Tom Mira Peter Lena Paul Sara Ben Eva Max Nora Leo Ida Jonas Clara Felix Emma Noah Olivia Liam Ava
Lucas Mia Ethan Sophie James Grace Henry Alice Jack Lucy Oscar Ruby Harry Ella Charlie Zoe Daniel Hannah David Julia Simon
Laura Martin Maria Thomas Kate Robert Nina Michael Rosa Anton Elena Ivan Olga Pavel Yuki Kenji Hana Wei Ling Chen Priya Arjun
Ravi Meera Omar Layla Yusuf Fatima Amir Carlos Lucia Diego Sofia Pablo Ines Marco Giulia Luca Chiara Pierre Camille Hugo Manon
Lars Ingrid Erik Astrid Sven Freya Nils Greta Kofi Ama Kwame Zuri Tariq Salma Dmitri Vera Igor Sasha Bob Jim Sam Joe Tim Meg
Ann Sue Kim Lee Jo Ed Al Mary John Jane Linda Karen Susan Nancy Betty Carol Ruth Sharon Helen Brian Kevin Gary Eric Scott
Frank Gregory Raymond Dennis Jerry Tyler Aaron Jose Adam Nathan Zachary Walter Kyle Harold Carl Arthur Roger Keith Jeremy""")
SURNAMES = words("""Smith Jones Taylor Brown Wilson Evans Thomas Roberts Walker Wright Green Hall Wood Clarke Baker Hill Moore
Cooper Ward Turner Carter Morris Reed Parker Ross Gray Foster Müller Schmidt Weber Fischer Rossi Ferrari Dubois Laurent Novak
Horvat Kowalski Nowak Ivanov Petrov Sato Tanaka Suzuki Kim Park Nguyen Tran Patel Singh Kumar Sharma Khan Ali Hassan Garcia
Lopez Silva Santos Costa Jensen Hansen Larsen Berg Lindqvist Okafor Mensah Diallo""")
TOWNS = words("""Oslo Bergen Paris Lyon Berlin Hamburg Munich Vienna Graz Zurich Geneva Rome Milan Turin Naples Madrid Seville
Lisbon Porto London Leeds Bristol York Dublin Cork Glasgow Cardiff Prague Brno Warsaw Krakow Budapest Athens Sofia Bucharest
Helsinki Tampere Stockholm Malmö Copenhagen Aarhus Brussels Ghent Amsterdam Utrecht Boston Chicago Denver Austin Dallas Seattle
Portland Toronto Montreal Ottawa Lima Quito Bogota Santiago Cairo Tunis Accra Lagos Nairobi Delhi Mumbai Pune Tokyo Kyoto Osaka
Seoul Busan Beijing Shanghai Hanoi Bangkok Jakarta Manila Sydney Perth Auckland Istanbul Ankara Tbilisi Riga Vilnius Tallinn
New_York San_Diego Los_Angeles Cape_Town Hong_Kong Buenos_Aires""")
COUNTRIES = words("""France Spain Portugal Italy Germany Austria Poland Norway Sweden Finland Denmark Iceland Ireland Scotland Wales
Greece Turkey Egypt Kenya Ghana Nigeria India Nepal China Japan Korea Vietnam Thailand Peru Chile Brazil Mexico Canada Cuba
Croatia Hungary Latvia Belgium Switzerland Morocco Australia""")
# How people are related to somebody: "my sister", "Anna's boss".
RELATIONS = words("""sister brother mother father aunt uncle cousin niece nephew grandmother grandfather son daughter wife husband
boss neighbour friend colleague landlord teacher doctor dentist lawyer manager assistant coach tutor roommate flatmate
girlfriend boyfriend mechanic accountant hairdresser supervisor professor trainer dog cat horse parrot hamster partner
best_friend mum dad grandma grandpa plumber babysitter cleaner gardener vet therapist agent mentor""")
JOBS = words("""baker nurse teacher driver pilot cook welder farmer lawyer plumber painter singer dancer writer editor barber
butcher carpenter clerk coach dentist doctor engineer florist gardener guard judge librarian mechanic musician optician
photographer programmer scientist secretary surgeon tailor translator vet waiter accountant analyst architect cashier chemist
electrician designer consultant mathematician biologist journalist plasterer beekeeper""")
# Things that stand about, with or without a place of their own.
OBJECTS = words("""key keys car bike phone laptop wallet passport umbrella camera charger book notebook umbrella kettle lamp sofa
table chair desk printer guitar piano violin drum ladder hammer drill saw toolbox bucket broom vacuum mop jacket coat scarf hat
glasses sunglasses ring watch necklace backpack suitcase tent tickets ticket receipt contract report folder letter parcel
package cake pizza bread milk coffee tea juice wine beer medicine pills bandage towel blanket pillow mattress bed fridge oven
stove microwave dishwasher washing_machine dryer remote television radio speaker headphones microphone router server battery
torch candle mirror clock vase painting poster rug curtain plant cactus orchid rake shovel lawnmower hose wheelbarrow boat canoe
kayak paddle skis sled skateboard scooter helmet ball racket bat net puzzle chessboard dice map compass telescope microscope
robot drone tablet keyboard mouse monitor cable adapter projector whiteboard stapler scissors tape glue paint brush spare_key
spare_tyre first_aid_kit birthday_present library_card ID_card credit_card shopping_list coffee_machine bread_knife frying_pan
garden_gate bathroom_scale photo_album sewing_machine sleeping_bag fire_extinguisher post_box bin recycling_bin""")
CONTAINERS = words("""drawer box basket bag cupboard shelf cabinet wardrobe fridge freezer garage cellar attic shed kitchen bathroom
bedroom hallway office lobby garden balcony basement car boot pocket purse safe locker suitcase jar pot vase bowl tin chest
closet studio library workshop barn tent corridor pantry toolbox backpack desk_drawer glove_compartment laundry_room""")
SURFACES = words(
    "table desk shelf windowsill sofa bed chair floor counter fridge stove piano roof balcony bench doormat wall"
)
COLOURS = words("""red blue green yellow black white brown grey pink purple orange silver golden beige turquoise violet crimson
dark_green light_blue navy_blue olive cream maroon teal""")
MATERIALS = words(
    "wood oak pine steel iron copper brass glass plastic paper cotton wool silk leather stone marble clay bamboo linen tin"
)
FOODS = words("""pizza pasta rice soup salad bread cheese cake pie curry sushi tacos noodles dumplings pancakes waffles eggs
tomatoes potatoes carrots mushrooms onions garlic olives apples pears plums cherries peaches lemons grapes melons strawberries
bananas nuts peanuts almonds honey chocolate butter milk yoghurt fish salmon tuna shrimp chicken beef pork lamb tofu beans
lentils coriander cinnamon mustard lasagne risotto goulash ramen""")
SPORTS = words(
    "tennis football chess golf hockey basketball volleyball badminton rugby squash handball cricket darts poker bridge"
)
INSTRUMENTS = words("guitar piano violin cello flute drums trumpet harp saxophone banjo accordion clarinet organ oboe")
LANGUAGES = words("""French Spanish German Italian Polish Russian Turkish Arabic Hindi Japanese Korean Chinese Greek Dutch Swedish
Finnish Danish Hungarian Czech Swahili Latin Welsh""")
SUBJECTS = words("""physics biology chemistry history law medicine music geology philosophy economics mathematics linguistics
architecture astronomy botany sociology statistics engineering nursing theology art""")
ANIMALS = words(
    "dog cat horse parrot hamster rabbit goat donkey tortoise canary goldfish pony lizard ferret pig hen duck"
)
EVENTS = words("""meeting party exam concert wedding lecture flight train bus ferry interview appointment rehearsal training
workshop seminar conference dinner lunch breakfast picnic barbecue game match race auction exhibition parade fair play show film
class course lesson webinar call review deadline delivery inspection checkup haircut reunion tour excursion trip hike sale
election ceremony funeral graduation performance festival tournament practice demo launch presentation audit surgery
team_meeting parents'_evening dentist_appointment birthday_party book_club board_meeting piano_lesson yoga_class job_interview
fire_drill garage_sale office_party driving_test doctor's_appointment swimming_lesson staff_meeting project_review stand-up""")
# Nouns that need no article: "Lunch is at noon", "Parking costs 4 euros".
BARE_EVENTS = words("""lunch dinner breakfast training practice school checkout check-in boarding parking rent admission shipping
registration kick-off rehearsal supper tea_time bedtime church choir football_practice orientation delivery""")
# What things, people and places have: "the wifi password", "Anna's shoe size".
ATTRIBUTES = words("""name age address phone_number email birthday nickname password username code PIN door_code gate_code
entry_code wifi_password password_hint locker_number room_number seat_number ticket_number order_number invoice_number
account_number serial_number part_number model_number flight_number track_number house_number floor size shoe_size height weight
length width depth colour favourite_colour favourite_food favourite_song favourite_film favourite_book favourite_drink hobby job
salary rent price cost fee deposit budget discount balance bill total tip score rank grade result speed temperature voltage
pressure capacity range distance duration deadline due_date start_date end_date start_time end_time opening_time closing_time
arrival_time departure_time departure_gate gate platform terminal seat row desk office building street city postcode country
capital owner author editor director manager captain coach leader chair host sponsor supplier contact client winner title topic
theme motto slogan subject version branch port IP_address hostname domain URL folder file_name status priority category label
tag brand maker model material shape flavour smell taste dose blood_type allergy diet breed species language currency timezone
species location position role department team project budget_code cost_centre licence_plate number_plate mileage fuel tank_size
screen_size battery_life warranty expiry_date maiden_name middle_name surname star_sign ring_size collar_size waist wingspan
population area elevation founder mascot anthem vault_code safe_code alarm_code voucher_code promo_code booking_reference
confirmation_number case_number tracking_number customer_number bank sort_code tax_number insurance_number library_card_number
emergency_number extension fax_number meeting_room dress_code menu main_course dessert recipe secret_ingredient oven_temperature
baking_time boiling_point melting_point half-life atomic_number dosage interest_rate exchange_rate tax_rate heart_rate sample_rate
frame_rate error_rate growth_rate bus_line bus_stop exit parking_space parking_spot parking_fee wake-up_time bedtime playlist
channel frequency key_code launch_date release_date renewal_date wedding_date arrival_date moving_date code_name project_name
pet_name band_name team_name user_ID badge_number badge_colour shift supervisor mentor tutor landlord neighbour plumber dentist
vet hairdresser lucky_number jersey_number record high_score top_speed""")
ORGS = words("""Bakery Bookshop Pharmacy Cafe Garage Laundry Grocery Florist Diner Bistro Museum Library Pool Theatre Castle Gallery
Gym Zoo Clinic School Archive Park Stadium Hall Hotel Inn Hostel Bank Market Cinema Restaurant Bar Pub Salon Studio Academy
Institute University Hospital Shop Store Center Tower Station Airport Church""")
COMPANIES = words("""Industries Partners Logistics Systems Textiles Motors Foods Paper Energy Labs Brothers Steel Software Media
Robotics Airlines Insurance Pharma Studios Consulting Group""")
PLACES = words("""kitchen garden office library park museum school station airport harbour market town_hall church gym cafe bar cinema
theatre stadium beach forest lake river bridge hotel hospital bakery restaurant garage cellar attic basement lobby courtyard
meeting_room main_hall conference_room classroom lecture_hall canteen playground community_centre swimming_pool bus_stop square
old_mill west_wing north_tower city_hall rose_garden parking_lot""")
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words("January February March April May June July August September October November December")
UNITS = words(
    "kilos grams pounds litres metres centimetres inches feet miles kilometres minutes hours days weeks months years percent degrees watts volts pages"
)
CURRENCIES = words("euros dollars pounds crowns francs yen rupees")
STREETS = words("Street Road Lane Avenue Square Alley Court Hill Drive Way")
# base, past, what it takes: somebody does it to a thing.
TRANSITIVES = tuple(
    tuple(pair.split("/"))
    for pair in words(
        """repair/repaired paint/painted buy/bought sell/sold lose/lost
find/found break/broke steal/stole borrow/borrowed clean/cleaned carry/carried drop/dropped build/built fix/fixed wash/washed
pack/packed wrap/wrapped open/opened close/closed lock/locked hide/hid move/moved throw_away/threw_away bring/brought order/ordered
return/returned deliver/delivered rent/rented choose/chose test/tested design/designed draw/drew photograph/photographed
write/wrote read/read sign/signed print/printed copy/copied send/sent receive/received cook/cooked bake/baked eat/ate taste/tasted
serve/served cut/cut fold/folded hang_up/hung_up pick_up/picked_up drop_off/dropped_off put_away/put_away take_apart/took_apart
assemble/assembled install/installed replace/replaced update/updated inspect/inspected measure/measured weigh/weighed
collect/collected donate/donated inherit/inherited polish/polished sand/sanded glue/glued water/watered plant/planted
charge/charged unplug/unplugged park/parked wash/washed sharpen/sharpened label/labelled scan/scanned mail/mailed store/stored
trade/traded auction/auctioned win/won review/reviewed reserve/reserved book/booked cancel/cancelled forget/forgot
leave/left damage/damaged scratch/scratched restore/restored decorate/decorated insure/insured tow/towed""".replace(
            "_", "~"
        )
    )
)
TRANSITIVES = tuple((base.replace("~", " "), past.replace("~", " ")) for base, past in TRANSITIVES)
MEETINGS = tuple(
    tuple(pair.split("/"))
    for pair in words("""meet/met visit/visited call/called see/saw marry/married hire/hired
interview/interviewed help/helped invite/invited teach/taught thank/thanked beat/beat join/joined follow/followed phone/phoned
email/emailed""")
)
ADJECTIVES = words("""old new small big red blue green black white brown grey spare broken wooden silver golden round long short
heavy light tall wide narrow rusty shiny striped leather paper glass plastic metal cheap expensive antique modern electric
folding portable missing lost second-hand brand-new soft noisy yellow orange pink purple dirty clean wet dry empty full
locked open secret public private final first second third last next weekly monthly annual upper lower inner outer left
right front back main side north south east west blue-eyed handmade Italian French Japanese Danish""")
# Words for the same thing, used on both sides of a question. Each pair was checked by hand.
SYNONYMS = {
    "phone number": ("telephone number", "number", "phone", "mobile number"), "email": ("email address", "e-mail", "mail address"),
    "price": ("cost",), "cost": ("price",), "opening time": ("opening hour", "time of opening"), "colour": ("color",),
    "favourite colour": ("favorite color",), "favourite food": ("favorite food",), "birthday": ("date of birth", "birth date"),
    "deadline": ("due date", "cutoff date"), "due date": ("deadline",), "job": ("profession", "occupation"), "boss": ("manager",),
    "wifi password": ("wi-fi password", "wifi key", "wireless password", "password for the wifi"), "surname": ("last name", "family name"),
    "owner": ("proprietor",), "salary": ("pay", "wage"), "author": ("writer",), "nickname": ("pet name",), "city": ("town",),
    "licence plate": ("number plate", "license plate"), "number plate": ("licence plate",), "PIN": ("PIN code",), "address": ("street address",),
    "postcode": ("zip code", "postal code"), "departure time": ("time of departure",), "arrival time": ("time of arrival",),
    "booking reference": ("booking number", "reservation code"), "meeting room": ("room",), "door code": ("code for the door", "code of the door"),
    "expiry date": ("expiration date",), "launch date": ("date of the launch",), "flight number": ("number of the flight",), "size": ("dimensions",),
}  # fmt: skip
