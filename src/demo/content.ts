/** The content of the demo project: its flows, their versions and the names of its contacts. Data only. */

/** A part of a page. An answer is stored under `field`; an input is filled in with the contact's details. */
type Block =
  | { type: 'heading' | 'text' | 'button'; text: string }
  | { type: 'choice' | 'multiple_choice'; field: string; label: string; options: readonly string[] }
  | { type: 'input'; field: 'name' | 'email' | 'phone'; label: string; required: boolean }

/** A custom event of a page; its properties are one of `props`. */
interface PageEvent {
  name: string
  chance: number
  props: readonly object[]
}

/** `onward` is the share of visitors who continue to the next page; each of `events` requires the one before it. */
export interface Page {
  page_id: string
  page_key: string
  title: string
  blocks: readonly Block[]
  onward: number
  events: readonly PageEvent[]
}

/** A saved version of a flow; without `published_at` it is a draft. */
interface Version {
  title: string
  saved_at: string
  published_at?: string
  page_keys: readonly string[]
}

/** A module: `weight` is its share of the visits; `versions` are numbered from 1 and list their pages. */
export interface Flow {
  module_id: string
  group_id: string
  title: string
  created_at: string
  weight: number
  versions: readonly Version[]
  pages: readonly Page[]
}

export const PROJECT_NAME = 'Lumen & Oak Skincare'

export const GROUPS = [
  { group_id: 'growth', name: 'Growth' },
  { group_id: 'sales', name: 'Sales' },
  { group_id: 'clinic', name: 'Clinic' },
] as const

const heading = (text: string): Block => ({ type: 'heading', text })
const text = (text: string): Block => ({ type: 'text', text })
const button = (text: string): Block => ({ type: 'button', text })
const choice = (field: string, label: string, options: readonly string[]): Block => ({
  type: 'choice',
  field,
  label,
  options,
})
const multipleChoice = (field: string, label: string, options: readonly string[]): Block => ({
  type: 'multiple_choice',
  field,
  label,
  options,
})

const NAME: Block = { type: 'input', field: 'name', label: 'Your name', required: true }
const EMAIL: Block = { type: 'input', field: 'email', label: 'Your email', required: true }
const PHONE: Block = { type: 'input', field: 'phone', label: 'Your phone (only if you like calls)', required: false }

const SKIN_QUIZ: Flow = {
  module_id: 'skin-quiz',
  group_id: 'growth',
  title: 'Skin quiz',
  created_at: '2025-11-10T13:05:21.480Z',
  weight: 5,
  versions: [
    {
      title: 'The two-minute skin quiz',
      saved_at: '2025-11-12T09:41:07.215Z',
      published_at: '2025-11-12T10:00:00.000Z',
      page_keys: ['intro', 'skin-type', 'concerns', 'routine', 'email', 'result'],
    },
    {
      title: 'Find your skin ritual',
      saved_at: '2026-02-03T15:22:48.902Z',
      published_at: '2026-02-04T08:00:00.000Z',
      page_keys: ['intro', 'skin-type', 'concerns', 'routine', 'budget', 'email', 'result'],
    },
    {
      title: 'Find your summer ritual',
      saved_at: '2026-02-26T16:58:33.107Z',
      page_keys: ['intro', 'skin-type', 'concerns', 'routine', 'sun-habits', 'budget', 'email', 'result'],
    },
  ],
  pages: [
    {
      page_id: 'p1',
      page_key: 'intro',
      title: 'Hello, skin',
      blocks: [
        heading('Good skin starts with good questions'),
        text('Two minutes, a handful of taps, and a routine made for the face you actually have.'),
        button('Start the quiz'),
      ],
      onward: 0.85,
      events: [
        {
          name: 'quiz_started',
          chance: 0.95,
          props: [{ source: 'newsletter' }, { source: 'instagram' }, { source: 'search' }, { source: 'friend' }],
        },
      ],
    },
    {
      page_id: 'p2',
      page_key: 'skin-type',
      title: 'Your skin type',
      blocks: [
        heading('An hour after washing, your skin feels…'),
        choice('skin_type', 'Pick the closest', ['dry', 'oily', 'combination', 'normal', 'sensitive']),
      ],
      onward: 0.86,
      events: [
        { name: 'skin_type_guide_opened', chance: 0.4, props: [{ guide: 'blotting-test' }, { guide: 'mirror' }] },
      ],
    },
    {
      page_id: 'p3',
      page_key: 'concerns',
      title: 'Your concerns',
      blocks: [
        heading('What would you like to change?'),
        multipleChoice('concerns', 'Choose as many as you like', [
          'dullness',
          'fine lines',
          'redness',
          'breakouts',
          'dark spots',
          'dehydration',
        ]),
      ],
      onward: 0.88,
      events: [
        {
          name: 'ingredient_info_opened',
          chance: 0.6,
          props: [{ ingredient: 'niacinamide' }, { ingredient: 'oak bark extract' }, { ingredient: 'ceramides' }],
        },
      ],
    },
    {
      page_id: 'p4',
      page_key: 'routine',
      title: 'Your routine',
      blocks: [
        heading('How long do you spend at the mirror?'),
        text('Be honest. Micellar water in bed counts.'),
        choice('routine', 'On a normal evening', ['under a minute', 'about five minutes', 'the full ten steps']),
      ],
      onward: 0.9,
      events: [
        { name: 'routine_example_viewed', chance: 0.45, props: [{ routine: 'evening' }, { routine: 'morning' }] },
      ],
    },
    {
      page_id: 'p8',
      page_key: 'sun-habits',
      title: 'You and the sun',
      blocks: [
        heading('Sunscreen: daily ritual or holiday souvenir?'),
        choice('sunscreen', 'I wear it', ['every day', 'in summer', 'at the beach', 'when I remember']),
      ],
      onward: 0.9,
      events: [],
    },
    {
      page_id: 'p5',
      page_key: 'budget',
      title: 'Your budget',
      blocks: [
        heading('What may a month of good skin cost?'),
        choice('budget', 'Per month', ['under €30', '€30–60', '€60–100', 'surprise me']),
      ],
      onward: 0.87,
      events: [],
    },
    {
      page_id: 'p6',
      page_key: 'email',
      title: 'Where to send it',
      blocks: [
        heading('Your routine is ready'),
        text('We will send it to you, with 10% off your first order. No daily emails, oak promise.'),
        NAME,
        EMAIL,
        button('Show my routine'),
      ],
      onward: 0.82,
      events: [{ name: 'newsletter_opt_in', chance: 0.7, props: [{ list: 'monthly-letter' }] }],
    },
    {
      page_id: 'p7',
      page_key: 'result',
      title: 'Your ritual',
      blocks: [
        heading('Three bottles, no nonsense'),
        text('Cleanse, restore, protect: here is your routine and why each step is in it.'),
        button('Shop the routine'),
      ],
      onward: 0,
      events: [
        { name: 'coupon_applied', chance: 0.7, props: [{ code: 'OAK10' }, { code: 'LUMEN15' }] },
        {
          name: 'checkout_started',
          chance: 0.75,
          props: [
            { items: 3, value: 84.5, currency: 'EUR' },
            { items: 2, value: 52, currency: 'EUR' },
            { items: 1, value: 28.9, currency: 'EUR' },
          ],
        },
        { name: 'order_placed', chance: 0.65, props: [{ shipping: 'standard' }, { shipping: 'express' }] },
      ],
    },
  ],
}

const CONSULTATION_REQUEST: Flow = {
  module_id: 'consultation-request',
  group_id: 'sales',
  title: 'Consultation request',
  created_at: '2025-11-19T10:12:44.031Z',
  weight: 3,
  versions: [
    {
      title: 'Ask an expert',
      saved_at: '2025-11-20T14:33:09.660Z',
      published_at: '2025-11-20T14:35:00.000Z',
      page_keys: ['welcome', 'goals', 'contact-details', 'thank-you'],
    },
    {
      title: 'Ask an expert (holiday edition)',
      saved_at: '2025-12-11T17:47:52.318Z',
      page_keys: ['welcome', 'contact-details', 'thank-you'],
    },
    {
      title: 'Talk to a skin expert',
      saved_at: '2026-01-21T11:20:15.774Z',
      published_at: '2026-01-22T07:30:00.000Z',
      page_keys: ['welcome', 'goals', 'history', 'contact-details', 'thank-you'],
    },
  ],
  pages: [
    {
      page_id: 'p1',
      page_key: 'welcome',
      title: 'Talk to a skin expert',
      blocks: [
        heading('Thirty minutes with someone who knows'),
        text('Free, by video, and nobody will try to sell you a jade roller.'),
        button('Request a consultation'),
      ],
      onward: 0.84,
      events: [
        {
          name: 'video_played',
          chance: 0.75,
          props: [
            { video: 'meet-the-team', seconds: 42 },
            { video: 'meet-the-team', seconds: 17 },
          ],
        },
        { name: 'testimonial_expanded', chance: 0.55, props: [{ testimonial: 'rosacea' }, { testimonial: 'acne' }] },
      ],
    },
    {
      page_id: 'p2',
      page_key: 'goals',
      title: 'Your goals',
      blocks: [
        heading('What shall we talk about?'),
        multipleChoice('goals', 'Choose up to three', [
          'acne',
          'rosacea',
          'ageing well',
          'pigmentation',
          'a simpler shelf',
        ]),
      ],
      onward: 0.88,
      events: [
        { name: 'faq_opened', chance: 0.6, props: [{ topic: 'cost' }, { topic: 'privacy' }, { topic: 'experts' }] },
      ],
    },
    {
      page_id: 'p3',
      page_key: 'history',
      title: 'What you have tried',
      blocks: [
        heading('So far, I have tried…'),
        choice('tried', 'Pick one', ['nothing yet', 'the pharmacy shelf', 'a dermatologist', 'everything on TikTok']),
        choice('free_in_the', 'I am usually free in the', ['morning', 'afternoon', 'evening']),
      ],
      onward: 0.86,
      events: [{ name: 'photo_uploaded', chance: 0.5, props: [{ photos: 1 }, { photos: 2 }, { photos: 3 }] }],
    },
    {
      page_id: 'p4',
      page_key: 'contact-details',
      title: 'How to reach you',
      blocks: [heading('Nearly there'), NAME, EMAIL, PHONE, button('Send my request')],
      onward: 0.85,
      events: [{ name: 'newsletter_opt_in', chance: 0.6, props: [{ list: 'expert-notes' }] }],
    },
    {
      page_id: 'p5',
      page_key: 'thank-you',
      title: 'Thank you',
      blocks: [
        heading('We will write within one working day'),
        text('Until then: drink some water, and leave that spot alone.'),
      ],
      onward: 0,
      events: [
        { name: 'brochure_downloaded', chance: 0.7, props: [{ file: 'consultation-guide.pdf' }] },
        {
          name: 'callback_scheduled',
          chance: 0.6,
          props: [{ expert: 'Marta' }, { expert: 'Idris' }, { expert: 'Noor' }],
        },
      ],
    },
  ],
}

const CLINIC_BOOKING: Flow = {
  module_id: 'clinic-booking',
  group_id: 'clinic',
  title: 'Clinic booking',
  created_at: '2025-12-01T08:54:30.912Z',
  weight: 2,
  versions: [
    {
      title: 'Book a treatment',
      saved_at: '2025-12-02T12:08:11.443Z',
      published_at: '2025-12-02T12:15:00.000Z',
      page_keys: ['treatment', 'day', 'details', 'confirmed'],
    },
    {
      title: 'Book a treatment',
      saved_at: '2026-01-15T09:30:57.089Z',
      published_at: '2026-01-16T06:00:00.000Z',
      page_keys: ['location', 'treatment', 'day', 'details', 'confirmed'],
    },
    {
      title: 'Book your visit',
      saved_at: '2026-02-17T18:02:26.551Z',
      published_at: '2026-02-18T06:00:00.000Z',
      page_keys: ['location', 'treatment', 'day', 'details', 'review', 'confirmed'],
    },
    {
      title: 'Book your visit, bring a friend',
      saved_at: '2026-02-27T15:44:03.296Z',
      page_keys: ['location', 'treatment', 'friend', 'day', 'details', 'review', 'confirmed'],
    },
  ],
  pages: [
    {
      page_id: 'p5',
      page_key: 'location',
      title: 'Choose a clinic',
      blocks: [
        heading('Where shall we see you?'),
        choice('location', 'Our clinics', ['Lisbon', 'Copenhagen', 'Edinburgh', 'Ljubljana']),
      ],
      onward: 0.87,
      events: [{ name: 'map_opened', chance: 0.7, props: [{ zoom: 12 }, { zoom: 14 }] }],
    },
    {
      page_id: 'p1',
      page_key: 'treatment',
      title: 'Choose a treatment',
      blocks: [
        heading('What can we do for you?'),
        choice('treatment', 'Treatments', ['Oak facial', 'Lumen light therapy', 'Gentle peel', 'Skin check']),
      ],
      onward: 0.86,
      events: [{ name: 'price_list_opened', chance: 0.7, props: [{ currency: 'EUR' }, { currency: 'GBP' }] }],
    },
    {
      page_id: 'p7',
      page_key: 'friend',
      title: 'Bring a friend',
      blocks: [
        heading('Two chairs, one playlist'),
        choice('friend', 'Will somebody join you?', ['just me', 'one friend', 'the whole book club']),
      ],
      onward: 0.9,
      events: [],
    },
    {
      page_id: 'p2',
      page_key: 'day',
      title: 'Choose a time',
      blocks: [
        heading('When suits you?'),
        choice('day', 'Day', ['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday']),
        choice('time', 'Time', ['09:00', '10:30', '13:00', '14:30', '16:00']),
      ],
      onward: 0.84,
      events: [{ name: 'waitlist_joined', chance: 0.3, props: [{ before: 'noon' }, { before: 'work' }] }],
    },
    {
      page_id: 'p3',
      page_key: 'details',
      title: 'Your details',
      blocks: [heading('Who may we expect?'), NAME, EMAIL, PHONE, text('We text a reminder the day before.')],
      onward: 0.88,
      events: [{ name: 'reminder_opt_in', chance: 0.6, props: [{ channel: 'sms' }, { channel: 'email' }] }],
    },
    {
      page_id: 'p6',
      page_key: 'review',
      title: 'Check and book',
      blocks: [
        heading('One last look'),
        text('You can move or cancel your visit free of charge until 24 hours before.'),
        button('Book my visit'),
      ],
      onward: 0.92,
      events: [{ name: 'deposit_paid', chance: 0.6, props: [{ amount: 30, currency: 'EUR' }] }],
    },
    {
      page_id: 'p4',
      page_key: 'confirmed',
      title: 'See you soon',
      blocks: [heading('You are booked'), text('Please come with a bare face and ten minutes to spare for tea.')],
      onward: 0,
      events: [
        { name: 'appointment_confirmed', chance: 0.9, props: [{ minutes: 45 }, { minutes: 60 }, { minutes: 30 }] },
        { name: 'calendar_file_downloaded', chance: 0.5, props: [{ format: 'ics' }] },
      ],
    },
  ],
}

export const FLOWS: readonly Flow[] = [SKIN_QUIZ, CONSULTATION_REQUEST, CLINIC_BOOKING]

/** Relative number of visits by hour of the day in UTC, with peaks at lunch and in the evening. */
export const HOUR_WEIGHTS: readonly number[] = [
  2, 1, 1, 1, 1, 2, 4, 7, 9, 9, 8, 10, 13, 11, 8, 8, 9, 11, 14, 18, 20, 17, 10, 5,
]

/**
 * Names of contacts: contact `i` has the names at `i` modulo the length of each list. As the lengths, 64 and 61, have no
 * common divisor, every pair occurs before one is repeated.
 */
export const FIRST_NAMES: readonly string[] = [
  ...['Amara', 'Sofía', 'Yuki', 'Lars', 'Priya', 'Mateus', 'Aoife', 'Chen', 'Zainab', 'Élodie', 'Tomasz'],
  ...['Leilani', 'Omar', 'Ingrid', 'Kwame', 'Giulia', 'Minh', 'Hannah', 'Rafael', 'Noor', 'Anton', 'Sinéad'],
  ...['Haruto', 'Fatima', 'Björn', 'Isabela', 'Dev', 'Camille', 'Thabo', 'Eleni', 'Jakub', 'Mei', 'Liam'],
  ...['Ayşe', 'Diego', 'Freya', 'Samuel', 'Katarína', 'Jin', 'Adaeze', 'Lucas', 'Niamh', 'Viktor', 'Ananya'],
  ...['Pedro', 'Astrid', 'Hassan', 'Chiara', 'Emeka', 'Zoë', 'Andrei', 'Mariam', 'Oliver', 'Linh', 'Nikos'],
  ...['Paula', 'Arjun', 'Saoirse', 'Elif', 'Marek', 'Naomi', 'Joaquín', 'Wanjiru', 'Theo'],
]

export const LAST_NAMES: readonly string[] = [
  ...['Okafor', 'Hernández', 'Tanaka', 'Lindqvist', 'Sharma', 'Carvalho', 'Brennan', 'Wei', 'Bello', 'Moreau', 'Nowak'],
  ...[
    'Kealoha',
    'Haddad',
    'Solberg',
    'Mensah',
    'Ricci',
    'Trần',
    'Schneider',
    'Duarte',
    'Rahman',
    'Petrov',
    'Gallagher',
  ],
  ...['Sato', 'Benali', 'Åkesson', 'Ferreira', 'Patel', 'Laurent', 'Nkosi', 'Papadaki', 'Zieliński', 'Lin', 'Fraser'],
  ...['Kaya', 'Castillo', 'Hansen', 'Adler', 'Horváthová', 'Park', 'Eze', 'Martin', 'Doyle', 'Novák', 'Iyer'],
  ...['Alves', 'Dahl', 'Mansour', 'Conti', 'Obi', 'van Dijk', 'Popescu', 'Khoury', 'Hughes', 'Phạm', 'Angelou'],
  ...['Vidal', 'Mehta', 'Kelly', 'Demir', 'Kowalski', 'Levy'],
]
